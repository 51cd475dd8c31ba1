#!/bin/sh
# What both images are made by, as root, in a Debian with Python: the locked packages into /opt/venv, for /opt/bolt.
set -eu
apt-get update
# git: the commit in provenance.json; g++: the attention kernel, compiled on first use for the processor that is there
apt-get install --yes --no-install-recommends g++ git make
rm -rf /var/lib/apt/lists/*
cd /opt/bolt
if [ "$TORCH_INDEX" = pip ]; then TORCH_INDEX=; fi
# bolt is compiled here, because users of the image cannot write
PIP_NO_CACHE_DIR=1 make install VENV=/opt/venv TORCH_INDEX="$TORCH_INDEX"
ln -sfn workflow/profiles profiles  # where Snakemake looks for the default one
/opt/venv/bin/python -m compileall -q bolt
/opt/venv/bin/python -m pip check
/opt/venv/bin/bolt --version
