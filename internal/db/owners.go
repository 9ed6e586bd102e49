package db

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/pressly/goose/v3"
)

// owned are the tables whose rows belong to somebody.
var owned = []string{"files", "containers", "executions"}

// ownersStand is the migration after which no statement moves a row to another owner or widens its scope, or gives it another
// id, whatever a mistake in a store asks for. The engines have no common way to say so.
func ownersStand(e Engine) *goose.Migration {
	const changed = `(NEW.id IS DISTINCT FROM OLD.id OR NEW.owner_app IS DISTINCT FROM OLD.owner_app
		OR NEW.owner_user IS DISTINCT FROM OLD.owner_user OR NEW.owner_scope IS DISTINCT FROM OLD.owner_scope)`
	var statements []string
	if e == Postgres {
		statements = append(statements, `CREATE FUNCTION owner_stands() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN RAISE EXCEPTION 'the owner of a row of % cannot be changed', TG_TABLE_NAME; END $$`)
	}
	for _, t := range owned {
		if e == Postgres {
			statements = append(statements, `CREATE TRIGGER `+t+`_owner_stands BEFORE UPDATE ON `+t+`
				FOR EACH ROW WHEN `+changed+` EXECUTE FUNCTION owner_stands()`)
			continue
		}
		statements = append(statements, `CREATE TRIGGER `+t+`_owner_stands BEFORE UPDATE OF id, owner_app, owner_user, owner_scope ON `+t+`
			WHEN `+changed+` BEGIN SELECT RAISE(ABORT, 'the owner of a row of `+t+` cannot be changed'); END`)
	}
	up := func(ctx context.Context, tx *sql.Tx) error {
		for _, s := range statements {
			if _, err := tx.ExecContext(ctx, s); err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
		}
		return nil
	}
	return goose.NewGoMigration(25, &goose.GoFunc{RunTx: up}, nil)
}
