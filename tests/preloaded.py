"""What commands import and look for, once for all: for the process that those of the tests are forked from."""

import gc
import importlib
import os

from pyes.config import registry

for name in (
    "torch",
    "matplotlib.figure",
    "hydra.compose",
    "hydra.core.utils",
    "hydra.main",
    "pyes.cli.commands",
    "pyes.cli.train",
    "pyes.remote.session",
    "pyes.reports.plots",
    "pyes.reports.replay",
    "pyes.reports.tables",
    "pyes.training.loop",
    "pytest",
    "faulty",
    "hosts",
):
    importlib.import_module(name)
for kinds in (registry.ALGORITHMS, registry.TASKS, registry.NETWORKS, registry.CLUSTERS):
    kinds.classes()
importlib.import_module("hydra.core.plugins").Plugins.instance()  # which looks at all that is installed
del os.environ["PYTHONPATH"]  # by which this process has found this module
gc.freeze()  # else each process would look through all of it
