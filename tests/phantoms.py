"""A phantom small enough for tests."""

from bolt.config import Simulate

TINY = Simulate(n_subjects=4, t1w_resolution=4.0, bold_resolution=[8.0, 8.5], n_volumes=[40, 36])
