#!/bin/sh
# Check that conda-forge can currently solve every environment on linux-64.
# Needs conda and a network; installs nothing. Meant for CI: the tests install the pip: sections but cannot query the channel.
set -eu
cd "$(dirname "$0")/../.."
export CONDA_SUBDIR=linux-64
for file in environment.yml workflow/envs/*.yaml; do
    echo "$file"
    conda env create --dry-run --quiet --name bolt-check --file "$file"
done
