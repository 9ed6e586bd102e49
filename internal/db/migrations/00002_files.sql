-- +goose Up
CREATE TABLE files (
    id           TEXT PRIMARY KEY,
    owner_app    TEXT NOT NULL REFERENCES apps (id),
    owner_user   TEXT NOT NULL,
    owner_scope  TEXT NOT NULL CHECK (owner_scope IN ('user', 'app')),
    filename     TEXT NOT NULL,
    mime_type    TEXT NOT NULL,
    size_bytes   BIGINT NOT NULL,
    sha256       TEXT NOT NULL,
    blob_key     TEXT NOT NULL,
    origin       TEXT NOT NULL CHECK (origin IN ('upload', 'output')),
    container_id TEXT NOT NULL,
    call_id      TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT,
    deleted_at   BIGINT
);
CREATE INDEX files_by_owner ON files (owner_app, created_at, id);
CREATE INDEX files_by_expiry ON files (expires_at);
CREATE INDEX files_by_blob ON files (blob_key);
