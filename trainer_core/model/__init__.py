"""The base model, its tokenizer and its adapter, and what really stands once they are loaded."""
