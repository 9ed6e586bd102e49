-- +goose Up
-- Bytes of the blob of pack_key; the operator is told who fills the disk.
ALTER TABLE containers ADD COLUMN pack_bytes BIGINT NOT NULL DEFAULT 0;
