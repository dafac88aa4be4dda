"""A run as data: its state, its journal, its metrics, and the directory that holds them.

Must not know where members are evaluated.
"""
