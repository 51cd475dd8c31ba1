"""The stages, one module per family, in the order of the data."""

# isort: skip_file
from bolt.workflow.stage import STAGES
from bolt.workflow.stages import dataset
from bolt.workflow.stages import scans
from bolt.workflow.stages import series
from bolt.workflow.stages import training
from bolt.workflow.stages import explanation
from bolt.workflow.stages import trust
from bolt.workflow.stages import experiments
from bolt.workflow.stages import report

__all__ = ["STAGES", "dataset", "experiments", "explanation", "report", "scans", "series", "training", "trust"]
