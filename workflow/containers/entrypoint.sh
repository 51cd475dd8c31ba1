#!/bin/sh
# The image is a BIDS App: its arguments are those of `bolt run` (BIDS_DIR OUTPUT_DIR participant|group …). Any other command,
# such as `snakemake …` or `bolt check …`, is run as it is.
case "${1:---help}" in
  -*) exec bolt run "${@:---help}" ;;
  */*) if [ -d "$1" ]; then exec bolt run "$@"; fi ;;
esac
exec "$@"
