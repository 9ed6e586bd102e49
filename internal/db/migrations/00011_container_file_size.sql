-- +goose Up
-- The files that a container was given are limited in sum, so each row remembers the size of its file.
ALTER TABLE container_files ADD COLUMN size_bytes BIGINT NOT NULL DEFAULT 0;
