-- +goose Up
CREATE TABLE containers (
    id               TEXT PRIMARY KEY,
    owner_app        TEXT NOT NULL REFERENCES apps (id),
    owner_user       TEXT NOT NULL,
    owner_scope      TEXT NOT NULL CHECK (owner_scope IN ('user', 'app')),
    state            TEXT NOT NULL CHECK (state IN ('active', 'expired', 'lost', 'deleting', 'deleted')),
    rootfs           TEXT NOT NULL,
    home             TEXT NOT NULL,
    has_workspace    BOOLEAN NOT NULL,
    repl             TEXT NOT NULL CHECK (repl IN ('', 'held', 'lost')),
    idle_ttl_seconds BIGINT NOT NULL,
    created_at       BIGINT NOT NULL,
    last_used_at     BIGINT NOT NULL,
    expires_at       BIGINT NOT NULL,
    max_expires_at   BIGINT NOT NULL,
    CHECK (expires_at <= max_expires_at)
);
CREATE INDEX containers_by_owner ON containers (owner_app, created_at, id);
CREATE INDEX containers_by_home ON containers (home, state, expires_at);

CREATE TABLE container_files (
    container_id TEXT NOT NULL REFERENCES containers (id),
    file_id      TEXT NOT NULL,
    path         TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    PRIMARY KEY (container_id, file_id),
    UNIQUE (container_id, path)
);
