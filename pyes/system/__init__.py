"""Access to the operating system: files, memory, cores, signals, addresses, installed packages.

Must not know what these are used for: nothing here depends on members, runs or networks.
"""
