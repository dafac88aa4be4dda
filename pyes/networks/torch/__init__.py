"""Networks as torch modules: additional layers, policies as modules, modules compiled or run.

    layers      a scale, virtual batch normalisation, recurrent cells with their state
    modules     a compiled policy as a torch module
    compiler    compiles a torch module to a program
    own         users' own modules: made, compiled, or run by torch

Only this package imports torch when it is imported, and the rest of pyes imports it only inside functions: compiled
networks train, resume, act and are exported (except as ``.pt``) without torch.
"""

from pyes.networks.torch.layers import Recurrent, Scale, VirtualBatchNorm
from pyes.networks.torch.modules import PolicyModule

__all__ = ["PolicyModule", "Recurrent", "Scale", "VirtualBatchNorm"]
