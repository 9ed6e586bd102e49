package audit

// OnCommit has fn called after each batch that was written; its error is that of the write.
func (l *Log) OnCommit(fn func() error) { l.committed = fn }

// Remembered counts the entries to which equal events still count, and those that wait to be written.
func (l *Log) Remembered() (known, waiting int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.recent.known, len(l.recent.waiting)
}
