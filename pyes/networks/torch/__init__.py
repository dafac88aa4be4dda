"""Networks as torch modules: the layers that torch lacks, compiled policies as modules, modules compiled or run.

    layers      a scale, virtual batch normalisation, recurrent cells with their state
    modules     a compiled policy as a torch module
    compiler    from a torch module to a program
    own         modules of the user's own: made, compiled, or run by torch

Everything in pyes that imports torch at once lies here, and nothing outside imports this at once: compiled networks
train, resume, act and are exported (but for ``.pt``) without torch.
"""

from pyes.networks.torch.layers import Recurrent, Scale, VirtualBatchNorm
from pyes.networks.torch.modules import PolicyModule

__all__ = ["PolicyModule", "Recurrent", "Scale", "VirtualBatchNorm"]
