"""The functions of the stages (`bolt.workflow.stage`), one module per family."""
