-- +goose Up
-- last_seen is exact to a day. deleted_at is when the administration deleted the user; erasing, as long as there may still be
-- something of his.
ALTER TABLE users ADD COLUMN last_seen BIGINT NOT NULL DEFAULT 0;
ALTER TABLE users ADD COLUMN deleted_at BIGINT;
ALTER TABLE users ADD COLUMN erasing BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE users SET last_seen = first_seen;
CREATE INDEX users_by_last_seen ON users (last_seen);
CREATE INDEX users_by_use ON users (app_id, last_seen);
CREATE INDEX users_erasing ON users (id) WHERE erasing;
