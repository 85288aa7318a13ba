-- A queue of transfers, version 1 (user_version). Times are seconds since 1970 (UTC), sizes bytes.
-- Every change of state is committed, and on the disk, before anything is done that follows from it.

CREATE TABLE job (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  submitted_unix_s REAL NOT NULL,
  cancelled_unix_s REAL,
  options TEXT NOT NULL                 -- JSON: venturi.managed.JobOptions
);

CREATE TABLE worker (
  id INTEGER PRIMARY KEY,               -- its lock is workers/ID
  pid INTEGER NOT NULL,
  host TEXT NOT NULL,
  started_unix_s REAL NOT NULL,
  ended_unix_s REAL
);

CREATE TABLE transfer (
  id INTEGER PRIMARY KEY,
  job INTEGER NOT NULL REFERENCES job,
  line INTEGER NOT NULL,                -- of the list
  source TEXT NOT NULL,
  destination TEXT NOT NULL,
  source_host TEXT NOT NULL,            -- '' for a file of this host
  destination_host TEXT NOT NULL,
  mover TEXT NOT NULL,
  size_bytes INTEGER,                   -- as listed, later as found
  checksum TEXT,                        -- as listed: algorithm:hex
  state TEXT NOT NULL DEFAULT 'queued'
    CHECK (state IN ('queued', 'active', 'done', 'failed', 'cancelled')),
  copied INTEGER NOT NULL DEFAULT 0,    -- the mover has ended well; what is left is to verify
  alone INTEGER NOT NULL DEFAULT 0,     -- not to be put into one call with others again
  attempts INTEGER NOT NULL DEFAULT 0,
  failures INTEGER NOT NULL DEFAULT 0,  -- attempts that count as tries
  due_unix_s REAL NOT NULL,             -- not before
  worker INTEGER REFERENCES worker,     -- who has it, while active
  call INTEGER,                         -- attempts of one call share this number
  stop INTEGER NOT NULL DEFAULT 0,      -- somebody wants it cancelled while it is active
  found TEXT,                           -- what lay at a local destination before the first attempt
  first_unix_s REAL,                    -- beginning of the first attempt
  ended_unix_s REAL,
  moved_bytes INTEGER,                  -- once done
  verified TEXT,                        -- algorithm by which both ends are the same
  unverified TEXT,                      -- why they were not compared
  cause TEXT,                           -- of the last failure
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
  files INTEGER NOT NULL,               -- of the call, which share its times
  waited_s REAL NOT NULL,               -- from when it was due to the start of the attempt
  start_unix_s REAL NOT NULL,
  end_unix_s REAL,
  outcome TEXT NOT NULL DEFAULT 'active', -- ok, failed, interrupted, cancelled
  cause TEXT,
  error TEXT,
  move_s REAL,                          -- the mover, from release to its end
  verify_s REAL,
  PRIMARY KEY (transfer, number)
) WITHOUT ROWID;
