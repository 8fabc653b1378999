"""Whole-model CUDA graphs, captured when a batch shape comes for the second time."""
