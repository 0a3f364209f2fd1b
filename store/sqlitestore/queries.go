package sqlitestore

import "strings"

// queries are the statements that name the log of one shard.
type queries struct {
	readNew, readRange, readParked string
	park, fillCopy                 string
	discard, replay, topic         string
}

const (
	messageColumns = `seq, id, topic, key, type, payload, content_type, headers, not_before, expires, min(created_at, {now}),
	coalesce(not_before > {now}, 0), coalesce(expires <= {now}, 0)`

	// readNew: ?1 the highest number read, ?2 how many.
	textReadNew = `SELECT ` + messageColumns + ` FROM {log} WHERE seq > ?1 ORDER BY seq LIMIT ?2`

	// readRange: ?1 to ?2 the numbers, ?3 how many.
	textReadRange = `SELECT ` + messageColumns + ` FROM {log} WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq LIMIT ?3`

	// readParked: ?1 a JSON array of arrival numbers. A message without a copy
	// is taken from the log.
	textReadParked = `SELECT p.seq, coalesce(p.id, l.id), coalesce(p.topic, l.topic), p.key, coalesce(p.type, l.type),
	coalesce(p.payload, l.payload), coalesce(p.content_type, l.content_type), coalesce(p.headers, l.headers),
	coalesce(p.not_before, l.not_before), coalesce(p.expires, l.expires), min(coalesce(p.created_at, l.created_at), {now}),
	coalesce(coalesce(p.not_before, l.not_before) > {now}, 0), coalesce(coalesce(p.expires, l.expires) <= {now}, 0),
	p.attempts, p.id IS NULL AND l.seq IS NULL, p.state, p.closes, p.replay, coalesce(max(p.due, p.changed_at), {now}), p.arrival
	FROM json_each(?1) AS j CROSS JOIN postrider_parked AS p ON p.arrival = j.value
	LEFT JOIN {log} AS l ON p.id IS NULL AND l.seq = p.seq
	ORDER BY j.key`

	// park: a message of the log gets a row with a copy of it.
	// ?1 route, ?2 shard, ?3 number, ?4 state, ?5 retry after, ?6 attempts, ?7 error, ?8 closes.
	textPark = `INSERT INTO postrider_parked (route, shard, seq, key, state, closes, due, attempts, error, changed_at,
		id, topic, type, payload, content_type, headers, not_before, expires, created_at)
	SELECT ?1, ?2, seq, key, ?4, ?8, CASE WHEN ?4 IN ('retrying', 'pending') THEN {now} + ?5 WHEN ?4 = 'scheduled' THEN coalesce(not_before, 0) END, ?6, ?7, {now},
		id, topic, type, payload, content_type, headers, not_before, expires, created_at
	FROM {log} WHERE seq = ?3`

	// discard: the record is whole, also of a message that was only a number so
	// far. ?1 route, ?2 shard, ?3 number.
	textDiscard = `UPDATE postrider_parked SET state = 'discarded', due = CASE WHEN closes THEN 0 END, changed_at = {now}
	WHERE route = ?1 AND shard = ?2 AND seq = ?3 AND state <> 'discarded' RETURNING key`

	textTopic = `SELECT topic FROM {log} WHERE seq = ?`

	// replay: what counts as done is parked as due. ?1 route, ?2 shard, ?3 number,
	// ?4 of the replay.
	textReplay = `INSERT INTO postrider_parked (route, shard, seq, key, state, due, replay, attempts, error, changed_at,
		id, topic, type, payload, content_type, headers, not_before, created_at)
	SELECT ?1, ?2, seq, key, 'pending', 0, ?4, 0, '', {now}, id, topic, type, payload, content_type, headers, not_before, created_at
	FROM {log} WHERE seq = ?3 ON CONFLICT DO NOTHING RETURNING ''`

	// fillCopy: a parked row that had only the number gets the copy.
	// ?1 route, ?2 shard, ?3 number.
	textFillCopy = `UPDATE postrider_parked SET id = l.id, topic = l.topic, type = l.type, payload = l.payload,
		content_type = l.content_type, headers = l.headers, not_before = l.not_before, expires = l.expires, created_at = l.created_at
	FROM {log} AS l
	WHERE route = ?1 AND shard = ?2 AND postrider_parked.seq = ?3 AND postrider_parked.id IS NULL AND l.seq = ?3`
)

func queriesOf(shard int) queries {
	fill := strings.NewReplacer("{log}", logTable(shard), "{now}", sqlNow).Replace
	return queries{
		readNew:    fill(textReadNew),
		readRange:  fill(textReadRange),
		readParked: fill(textReadParked),
		park:       fill(textPark),
		fillCopy:   fill(textFillCopy),
		discard:    fill(textDiscard),
		replay:     fill(textReplay),
		topic:      fill(textTopic),
	}
}
