"""What a run will need: a model's shape off its config, bytes a device and a host, the strategies that fit."""
