-- Each resource, and the largest epoch that has written to it. Never delete a row: the fence would forget the epoch.
CREATE TABLE IF NOT EXISTS fence (
    resource text PRIMARY KEY,
    epoch bigint NOT NULL
);

-- What the workers write: here stand your own tables.
CREATE TABLE IF NOT EXISTS payment (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    resource text NOT NULL REFERENCES fence,
    epoch bigint NOT NULL
);
