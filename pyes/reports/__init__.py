"""What people look at: curves, tables, maps, videos and exports of runs, replays of individuals, a head's status.

Must not know how members are evaluated during training. Reads run directories; writes only the files it is asked for.
"""
