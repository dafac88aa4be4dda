"""Evaluation of parameters: batches of members, rollouts of their episodes, observation statistics.

Must not know processes, machines or the algorithm.
"""
