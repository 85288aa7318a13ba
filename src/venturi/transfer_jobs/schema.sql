-- Transfer queue, version 1 (user_version). Times are in seconds since 1970 (UTC), sizes in bytes.
-- A change of state is committed to disk before Venturi acts on it.

CREATE TABLE job (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  submitted_unix_s REAL NOT NULL,
  cancelled_unix_s REAL,
  options TEXT NOT NULL                 -- JSON: venturi.transfer_jobs.JobOptions
);

CREATE TABLE worker (
  id INTEGER PRIMARY KEY,               -- the lock file is workers/ID
  pid INTEGER NOT NULL,
  host TEXT NOT NULL,
  started_unix_s REAL NOT NULL,
  ended_unix_s REAL
);

CREATE TABLE transfer (
  id INTEGER PRIMARY KEY,
  job INTEGER NOT NULL REFERENCES job,
  line INTEGER NOT NULL,                -- line number in the list
  source TEXT NOT NULL,
  destination TEXT NOT NULL,
  source_host TEXT NOT NULL,            -- '' for a local file
  destination_host TEXT NOT NULL,
  mover TEXT NOT NULL,
  size_bytes INTEGER,                   -- from the list, later as measured
  checksum TEXT,                        -- from the list: algorithm:hex
  state TEXT NOT NULL DEFAULT 'queued'
    CHECK (state IN ('queued', 'active', 'done', 'failed', 'cancelled')),
  copied INTEGER NOT NULL DEFAULT 0,    -- 1: the mover succeeded, only verification remains
  alone INTEGER NOT NULL DEFAULT 0,     -- 1: retry in a separate call
  attempts INTEGER NOT NULL DEFAULT 0,
  failures INTEGER NOT NULL DEFAULT 0,  -- attempts that count against the retries
  due_unix_s REAL NOT NULL,             -- earliest start
  worker INTEGER REFERENCES worker,     -- worker that executes it, if active
  call INTEGER,                         -- number of the call, equal for all of its attempts
  stop INTEGER NOT NULL DEFAULT 0,      -- 1: cancellation requested while active
  found TEXT,                           -- state of a local destination before the first attempt
  first_unix_s REAL,                    -- start of the first attempt
  ended_unix_s REAL,
  moved_bytes INTEGER,                  -- set when done
  verified TEXT,                        -- algorithm whose checksums agreed
  unverified TEXT,                      -- reason why checksums were not compared
  cause TEXT,                           -- cause of the last failure
  error TEXT
);
CREATE INDEX transfer_due ON transfer (state, job, due_unix_s);
CREATE INDEX transfer_of_job ON transfer (job, state);
CREATE INDEX transfer_to ON transfer (destination);

CREATE TABLE attempt (
  transfer INTEGER NOT NULL REFERENCES transfer,
  number INTEGER NOT NULL,
  worker INTEGER NOT NULL REFERENCES worker,
  call INTEGER NOT NULL,
  files INTEGER NOT NULL,               -- number of files in the call; they share its times
  waited_s REAL NOT NULL,               -- from due_unix_s to the start of the attempt
  start_unix_s REAL NOT NULL,
  end_unix_s REAL,
  outcome TEXT NOT NULL DEFAULT 'active', -- ok, failed, interrupted, cancelled
  cause TEXT,
  error TEXT,
  move_s REAL,                          -- duration of the mover
  verify_s REAL,
  PRIMARY KEY (transfer, number)
) WITHOUT ROWID;
