"""Loggers: where the curves of a run go besides its directory, such as TensorBoard or a server of MLflow.

Owns the interface of a logger, and the process in which each lives, beside that of the run. Must not know the loop: all
that a logger is given lies in the run directory.
"""

from collections.abc import Mapping

#: Keys of the section ``logger`` that switch a logger on: the class, and the library that it needs.
OWN: Mapping[str, tuple[str, str]] = {
    "tensorboard": ("pyes.reports.loggers.tensorboard:TensorBoard", "tensorboard"),
    "wandb": ("pyes.reports.loggers.wandb:WeightsAndBiases", "wandb"),
    "mlflow": ("pyes.reports.loggers.mlflow:MLflow", "mlflow"),
    "trackio": ("pyes.reports.loggers.trackio:Trackio", "trackio"),
}
