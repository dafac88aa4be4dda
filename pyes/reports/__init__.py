"""Reports for people: curves, tables, maps, videos and exports of runs, replays of individuals, a head's status.

Must not know how members are evaluated during training. Reads run directories; writes only the requested files.
"""
