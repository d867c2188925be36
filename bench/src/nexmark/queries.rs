//! The queries, in Spark's SQL, and what others have published about them.
//!
//! They follow the suite for Flink. What is written another way, since Spark has no such function:
//! `regexp_extract` gives an empty text and not NULL where nothing matches (q21), and characters
//! are counted by what is left without them (q14). The watermark is four seconds behind.
//!
//! q5 and q7 join an aggregation with its own input, or with itself. Beside them stand two queries
//! that are not in the suite and need no join: the best of each window, of equal ones the one with
//! the highest numbers.

/// A query.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// `q0` and so on.
    pub name: &'static str,
    /// Its SELECT.
    pub select: &'static str,
    /// What is published of it.
    pub published: Published,
}

/// Thousand events a second for each core, as others publish it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Published {
    /// Flink 1.13 to 2.0, state in RocksDB, 100 million events.
    pub flink_1: Option<f64>,
    /// Flink 2.0, 50 million events.
    pub flink_2: Option<f64>,
    /// RisingWave of March 2023, rows.
    pub risingwave: Option<f64>,
}

const fn published(flink_1: f64, flink_2: Option<f64>, risingwave: Option<f64>) -> Published {
    Published { flink_1: Some(flink_1), flink_2, risingwave }
}

const NOT_PUBLISHED: Published = Published { flink_1: None, flink_2: None, risingwave: None };

/// Columns of the topic.
pub const COLUMNS: &str = "event_type INT, dateTime TIMESTAMP,\n\
    person STRUCT<id: BIGINT, name: STRING, emailAddress: STRING, creditCard: STRING, \
    city: STRING, state: STRING, extra: STRING>,\n\
    auction STRUCT<id: BIGINT, itemName: STRING, description: STRING, initialBid: BIGINT, \
    reserve: BIGINT, expires: TIMESTAMP, seller: BIGINT, category: BIGINT, extra: STRING>,\n\
    bid STRUCT<auction: BIGINT, bidder: BIGINT, price: BIGINT, channel: STRING, url: STRING, \
    extra: STRING>";

/// What the queries read.
pub const VIEWS: &str = "CREATE TEMPORARY VIEW person AS\n\
    SELECT person.id AS id, person.name AS name, dateTime\n\
    FROM STREAM events WATERMARK dateTime DELAY OF INTERVAL 4 SECONDS WHERE event_type = 0;\n\
    CREATE TEMPORARY VIEW auction AS\n\
    SELECT auction.id AS id, auction.seller AS seller, dateTime\n\
    FROM STREAM events WATERMARK dateTime DELAY OF INTERVAL 4 SECONDS WHERE event_type = 1;\n\
    CREATE TEMPORARY VIEW bid AS\n\
    SELECT bid.auction AS auction, bid.bidder AS bidder, bid.price AS price,\n\
    bid.channel AS channel, bid.url AS url, dateTime, bid.extra AS extra\n\
    FROM STREAM events WATERMARK dateTime DELAY OF INTERVAL 4 SECONDS WHERE event_type = 2;\n";

/// All of them.
pub const QUERIES: &[Query] = &[
    Query {
        name: "q0",
        select: "SELECT auction, bidder, price, dateTime, extra FROM bid",
        published: published(155.0, Some(379.0), Some(118.0)),
    },
    Query {
        name: "q1",
        select: "SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid",
        published: published(158.0, Some(395.0), Some(119.0)),
    },
    Query {
        name: "q2",
        select: "SELECT auction, price FROM bid WHERE auction % 123 = 0",
        published: published(175.0, Some(414.0), Some(127.0)),
    },
    Query {
        name: "q5",
        select: "SELECT counted.auction AS auction, counted.num AS num FROM (\n\
            SELECT auction, count(*) AS num, window FROM bid\n\
            GROUP BY auction, window(dateTime, '10 seconds', '2 seconds')) AS counted\n\
            JOIN (SELECT max(num) AS maxnum, window FROM (\n\
            SELECT auction, count(*) AS num, window FROM bid\n\
            GROUP BY auction, window(dateTime, '10 seconds', '2 seconds'))\n\
            GROUP BY window) AS best\n\
            ON counted.window = best.window AND counted.num >= best.maxnum",
        published: published(22.0, Some(75.0), Some(5.2)),
    },
    Query {
        name: "q5-without-join",
        select: "SELECT start, best.num AS num, best.auction AS auction FROM (\n\
            SELECT w.start AS start, max(struct(num, auction)) AS best FROM (\n\
            SELECT auction, count(*) AS num, window AS w FROM bid\n\
            GROUP BY auction, window(dateTime, '10 seconds', '2 seconds')) GROUP BY w)",
        published: NOT_PUBLISHED,
    },
    Query {
        name: "q7",
        select: "SELECT b.auction AS auction, b.price AS price, b.bidder AS bidder,\n\
            b.dateTime AS dateTime, b.extra AS extra FROM bid AS b\n\
            JOIN (SELECT max(price) AS maxprice, window FROM bid\n\
            GROUP BY window(dateTime, '10 seconds')) AS best\n\
            ON b.price = best.maxprice\n\
            AND b.dateTime BETWEEN best.window.start AND best.window.end",
        published: published(12.3, Some(23.0), Some(20.0)),
    },
    Query {
        name: "q7-without-join",
        select: "SELECT start, best.price AS price, best.auction AS auction,\n\
            best.bidder AS bidder FROM (\n\
            SELECT window.start AS start, max(struct(price, auction, bidder)) AS best FROM bid\n\
            GROUP BY window(dateTime, '10 seconds'))",
        published: Published { flink_1: None, flink_2: None, risingwave: Some(99.0) },
    },
    Query {
        name: "q8",
        select: "SELECT p.id AS id, p.name AS name, p.w.start AS starttime FROM (\n\
            SELECT id, name, window AS w FROM person\n\
            GROUP BY id, name, window(dateTime, '10 seconds')) AS p\n\
            JOIN (SELECT seller, window AS w FROM auction\n\
            GROUP BY seller, window(dateTime, '10 seconds')) AS a\n\
            ON p.id = a.seller AND p.w = a.w",
        published: published(146.0, Some(162.0), Some(61.0)),
    },
    Query {
        name: "q11",
        select: "SELECT bidder, count(*) AS bid_count, session_window.start AS starttime,\n\
            session_window.end AS endtime FROM bid\n\
            GROUP BY bidder, session_window(dateTime, '10 seconds')",
        published: published(40.0, Some(46.0), None),
    },
    Query {
        name: "q12",
        select: "SELECT bidder, count(*) AS bid_count, window.start AS starttime,\n\
            window.end AS endtime FROM (\n\
            SELECT bid.bidder AS bidder, current_timestamp() AS p_time\n\
            FROM STREAM events WHERE event_type = 2)\n\
            WATERMARK p_time DELAY OF INTERVAL 0 SECONDS AS b\n\
            GROUP BY bidder, window(p_time, '10 seconds')",
        published: published(76.0, Some(194.0), None),
    },
    Query {
        name: "q14",
        select: "SELECT auction, bidder, 0.908 * price AS price,\n\
            CASE WHEN hour(dateTime) >= 8 AND hour(dateTime) <= 18 THEN 'dayTime'\n\
            WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'\n\
            ELSE 'otherTime' END AS bidTimeType, dateTime, extra,\n\
            length(extra) - length(replace(extra, 'c', '')) AS c_counts FROM bid\n\
            WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000",
        published: published(161.0, None, None),
    },
    Query {
        name: "q21",
        select: "SELECT auction, bidder, price, channel,\n\
            CASE WHEN lower(channel) = 'apple' THEN '0' WHEN lower(channel) = 'google' THEN '1'\n\
            WHEN lower(channel) = 'facebook' THEN '2' WHEN lower(channel) = 'baidu' THEN '3'\n\
            ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id FROM bid\n\
            WHERE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> ''\n\
            OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')",
        published: published(98.0, None, None),
    },
    Query {
        name: "q22",
        select: "SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1,\n\
            split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3 FROM bid",
        published: published(130.0, Some(212.0), Some(110.0)),
    },
];

impl Query {
    /// Whether its windows are those of the clock: then nobody knows when they close, so that it is
    /// timed with the groups that each micro-batch has changed, and checked once all have closed.
    pub fn is_by_clock(&self) -> bool {
        self.name == "q12"
    }

    /// The pipeline file; `source` and `sink` are connectors with their options.
    pub fn pipeline(&self, source: &str, sink: &str) -> String {
        format!(
            "CREATE TABLE events ({COLUMNS}) USING {source};\n\
             CREATE TABLE output USING {sink};\n{VIEWS}\
             CREATE FLOW nexmark AS INSERT INTO output\n{};\n",
            self.select
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        let names: std::collections::BTreeSet<_> = QUERIES.iter().map(|query| query.name).collect();
        assert_eq!(names.len(), QUERIES.len());
    }

    #[test]
    fn a_pipeline_has_source_sink_and_query() {
        let pipeline = QUERIES[2].pipeline("kafka OPTIONS ('subscribe' = 'in')", "noop");
        assert!(pipeline.contains("USING kafka OPTIONS ('subscribe' = 'in');\n"));
        assert!(pipeline.contains("CREATE TABLE output USING noop;\nCREATE TEMPORARY VIEW person"));
        assert!(pipeline.ends_with(
            "INSERT INTO output\nSELECT auction, price FROM bid WHERE auction % 123 = 0;\n"
        ));
    }
}
