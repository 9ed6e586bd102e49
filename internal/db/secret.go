package db

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"

	"github.com/uptrace/bun"
)

type secret struct {
	bun.BaseModel `bun:"table:server_secrets"`
	Name          string `bun:"name,pk"`
	Value         string `bun:"value"`
}

// Secret gives the random value of size bytes kept under name, and makes it at the first call. It is
// the same for all servers on one database.
func (d *DB) Secret(ctx context.Context, name string, size int) ([]byte, error) {
	fresh := make([]byte, size)
	_, _ = rand.Read(fresh) // never fails since Go 1.24
	var row secret
	err := d.RunTx(ctx, func(ctx context.Context, tx Tx) error {
		row = secret{Name: name, Value: base64.StdEncoding.EncodeToString(fresh)}
		if _, err := tx.NewInsert().Model(&row).On("CONFLICT (name) DO NOTHING").Exec(ctx); err != nil {
			return err
		}
		return tx.NewSelect().Model(&row).Where("name = ?", name).Scan(ctx)
	})
	if err != nil {
		return nil, fmt.Errorf("read secret %s: %w", name, err)
	}
	b, err := base64.StdEncoding.DecodeString(row.Value)
	if err != nil || len(b) != size {
		return nil, fmt.Errorf("read secret %s: the stored value is damaged", name)
	}
	return b, nil
}
