"""Reading a model directory: what the files say, checked."""
