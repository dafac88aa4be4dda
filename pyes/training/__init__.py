"""Training: how a run begins, goes on, is resumed and ends; what it shows and sends meanwhile; and `tuning` of many.

Must not know how members are evaluated, nor over which connection.
"""
