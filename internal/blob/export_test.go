package blob

import "context"

// Unfinished counts the uploads of the store that were begun and neither completed nor aborted.
func (s *Store) Unfinished(ctx context.Context) (int, error) {
	b, ok := s.b.(*bucket)
	if !ok {
		return 0, nil
	}
	r, err := b.c.ListMultipartUploads(ctx, b.name, b.prefix, "", "", "", 1000)
	return len(r.Uploads), err
}
