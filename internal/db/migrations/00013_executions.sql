-- +goose Up
-- What code used: a row for each command and cell, and one for what ran between them (kind 'background').
CREATE TABLE executions (
    id           TEXT PRIMARY KEY,
    container_id TEXT NOT NULL REFERENCES containers (id),
    owner_app    TEXT NOT NULL REFERENCES apps (id),
    owner_user   TEXT NOT NULL,
    owner_scope  TEXT NOT NULL CHECK (owner_scope IN ('user', 'app')),
    kind         TEXT NOT NULL CHECK (kind IN ('exec', 'bash', 'cell', 'background')),
    outcome      TEXT NOT NULL CHECK (outcome IN ('exited', 'timed_out', 'out_of_memory', 'canceled', 'gone')),
    exit_code    BIGINT NOT NULL,
    started_at   BIGINT NOT NULL,
    wall_usec    BIGINT NOT NULL,
    cpu_usec     BIGINT NOT NULL,
    peak_bytes   BIGINT NOT NULL,
    bytes_in     BIGINT NOT NULL,
    bytes_out    BIGINT NOT NULL
);
CREATE INDEX executions_by_owner ON executions (owner_app, started_at, id);
CREATE INDEX executions_by_container ON executions (container_id, started_at, id);
