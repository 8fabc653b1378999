"""The engine: loads a model and runs its steps."""
