#!/bin/sh
# Check that conda-forge can currently solve every environment on linux-64: without a GPU, and for CUDA 12 and 13.
# Needs conda and a network; installs nothing. Meant for CI: the tests compare pins but cannot query the channel.
set -eu
cd "$(dirname "$0")/../.."
export CONDA_SUBDIR=linux-64
for cuda in "" 12.9 13.0; do
    for file in environment.yml workflow/envs/*.yaml; do
        echo "$file, ${cuda:+CUDA }${cuda:-no GPU}"
        solved=$(CONDA_OVERRIDE_CUDA="$cuda" conda env create --dry-run --quiet --name bolt-check --file "$file")
        echo "$solved" | grep pytorch= || true  # the build: cpu… or cuda…
    done
done
