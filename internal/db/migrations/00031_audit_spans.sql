-- +goose Up
-- An entry stands for equal events from at to last_at. source is the app, or the issuer of a user of no app: the sources and
-- kinds of event share the room there is.
ALTER TABLE audit ADD COLUMN last_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE audit ADD COLUMN source TEXT NOT NULL DEFAULT '';
UPDATE audit SET last_at = at, source = app_id;
CREATE INDEX audit_by_source ON audit (source, event, at, id);
