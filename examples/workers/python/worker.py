"""A worker that fences its writes: vvm run --storage URL --name payroll -- python worker.py

DATABASE_URL names the database, which has the tables of schema.sql.
"""

import os
import sys
import time

import psycopg

# Changes no row if a larger epoch has written. The row stays locked until the end of the transaction.
FENCE = """
    INSERT INTO fence (resource, epoch) VALUES (%s, %s)
    ON CONFLICT (resource) DO UPDATE SET epoch = excluded.epoch WHERE fence.epoch <= excluded.epoch
"""


class Stale(Exception):
    """A later leader has written."""


def pay(connection, resource, epoch):
    """Writes in a transaction that begins with the fence. If it raises, nothing is written."""
    with connection.transaction():
        if connection.execute(FENCE, (resource, epoch)).rowcount == 0:
            raise Stale(f"epoch {epoch} of {resource} has ended: a later leader has written")
        connection.execute("INSERT INTO payment (resource, epoch) VALUES (%s, %s)", (resource, epoch))


def main():
    # Each slot has a leader and epochs of its own.
    resource = f"{os.environ['VVM_LEADER_NAME']}/{os.environ['VVM_LEADER_SLOT']}"
    epoch = int(os.environ["VVM_LEADER_EPOCH"])
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        while True:
            try:
                pay(connection, resource, epoch)
            except Stale as stale:
                sys.exit(f"worker: {stale}")
            print(f"paid under epoch {epoch}", flush=True)
            time.sleep(1)


if __name__ == "__main__":
    main()
