"""An independent checker of store directories.

It shares only the format tables with the store, so that each finds the other's mistakes. It opens
files read-only and takes no lock. It also works on a store of Apache RocketMQ, of a replica, of a
running broker, and on a copy of a running broker's store.

For a store that wasn't shut down (the file `abort` exists), the check first notes where the log
ends. It counts units, index entries and consumer offsets of messages after that end as ahead,
messages at the end of a queue without units as behind, and bytes after the last record as a torn
tail. The next start repairs all of these, so they aren't problems.
"""
