-- +goose Up
-- A packed workspace is the blob of this key; the image on disk is then no longer the container's, or not yet again.
ALTER TABLE containers ADD COLUMN pack_key TEXT NOT NULL DEFAULT '';
ALTER TABLE containers ADD COLUMN pack_sha256 TEXT NOT NULL DEFAULT '';
CREATE INDEX containers_by_pack ON containers (pack_key);
