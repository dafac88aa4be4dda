"""The Python side of the compiled kernels: the noise table, random streams, the shaping of returns.

Must not know algorithms or tasks. Equal input gives equal bits on every machine.
"""
