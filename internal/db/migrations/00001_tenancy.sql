-- +goose Up
CREATE TABLE server_secrets (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

CREATE TABLE apps (
    id          TEXT PRIMARY KEY,
    name        TEXT NOT NULL UNIQUE,
    created_at  BIGINT NOT NULL,
    disabled_at BIGINT
);

CREATE TABLE api_keys (
    id         TEXT PRIMARY KEY,
    kind       TEXT NOT NULL CHECK (kind IN ('api', 'admin')),
    app_id     TEXT REFERENCES apps (id),
    role       TEXT NOT NULL,
    name       TEXT NOT NULL,
    scopes     TEXT NOT NULL,
    hash       TEXT NOT NULL UNIQUE,
    hint       TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT,
    CHECK ((kind = 'api') = (app_id IS NOT NULL))
);
CREATE INDEX api_keys_by_app ON api_keys (app_id, created_at, id);
