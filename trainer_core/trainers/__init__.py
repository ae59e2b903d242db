"""The Hugging Face Trainers behind the methods: counting, averaging, generating, preferring."""
