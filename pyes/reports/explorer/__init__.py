"""The page of ``pyes explore``: runs seen in a browser of this machine, live while they train.

Owns the page, its server and the process that plays individuals for it. Reads runs, never writes to them. Must not know
how runs are trained.
"""
