-- +goose Up
-- A list is what the whole app may see and what is the caller's own; each half has an index that holds nothing else, so that
-- the page of one user never reads the rows of another.
CREATE INDEX files_of_app ON files (owner_app, created_at, id) WHERE owner_scope = 'app' AND deleted_at IS NULL;
CREATE INDEX files_of_user ON files (owner_app, owner_user, created_at, id) WHERE owner_scope = 'user' AND deleted_at IS NULL;
CREATE INDEX containers_of_app ON containers (owner_app, created_at, id)
    WHERE owner_scope = 'app' AND state NOT IN ('deleting', 'deleted');
CREATE INDEX containers_of_user ON containers (owner_app, owner_user, created_at, id)
    WHERE owner_scope = 'user' AND state NOT IN ('deleting', 'deleted');
