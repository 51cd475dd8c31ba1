"""What the Snakefile asks for: the run and its files, stages, job groups, estimate, lock, disk and SLURM."""
