"""What pyes asks of the operating system: files, memory, cores, signals, addresses, installed packages.

Must not know what any of it is for: nothing here names a member, a run or a network.
"""
