"""Training of models on one fold at a time: the loop, checkpoints, predictions and hyper-parameter search."""
