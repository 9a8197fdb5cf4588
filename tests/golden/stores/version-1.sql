BEGIN TRANSACTION;
CREATE TABLE wattune_run_gpus (
                run_id TEXT NOT NULL REFERENCES wattune_runs (id) ON DELETE CASCADE,
                position INTEGER NOT NULL,
                uuid TEXT NOT NULL,
                name TEXT NOT NULL,
                simulated BOOLEAN NOT NULL,
                time_s DOUBLE PRECISION NOT NULL,
                energy_j DOUBLE PRECISION,
                energy_error_j DOUBLE PRECISION,
                PRIMARY KEY (run_id, position)
            );
INSERT INTO "wattune_run_gpus" VALUES('5f0c',0,'GPU-0','A100',1,2.5,500.25,0.5);
INSERT INTO "wattune_run_gpus" VALUES('5f0c',1,'GPU-1','A100',1,2.5,500.25,0.5);
INSERT INTO "wattune_run_gpus" VALUES('7a10',0,'GPU-0','A100',0,2.5,500.25,0.5);
INSERT INTO "wattune_run_gpus" VALUES('7a10',1,'GPU-1','A100',0,2.5,500.25,0.5);
CREATE TABLE wattune_runs (
                id TEXT NOT NULL PRIMARY KEY,
                kind TEXT NOT NULL,
                name TEXT NOT NULL,
                started_at TIMESTAMP WITH TIME ZONE NOT NULL,
                time_s DOUBLE PRECISION NOT NULL,
                energy_j DOUBLE PRECISION,
                energy_error_j DOUBLE PRECISION,
                simulated BOOLEAN NOT NULL,
                host TEXT NOT NULL,
                version TEXT NOT NULL,
                note TEXT,
                details TEXT NOT NULL
            );
INSERT INTO "wattune_runs" VALUES('5f0c','measure','python train.py','2025-03-01 12:00:00.123456',2.5,1000.5,0.7,1,'node1','0.1.0','a note','{"exit_code": 0, "clocks": [1410, null], "text": "na\u00efve \u0000 \u65e5\u672c"}');
INSERT INTO "wattune_runs" VALUES('7a10','measure','python train.py','2025-03-01 12:03:00.123456',2.5,1000.5,0.7,0,'node1','0.1.0','a note','{"exit_code": 0, "clocks": [1410, null], "text": "na\u00efve \u0000 \u65e5\u672c"}');
CREATE TABLE wattune_schema (
        version INTEGER NOT NULL PRIMARY KEY,
        applied_at TEXT NOT NULL,
        program TEXT NOT NULL
    );
INSERT INTO "wattune_schema" VALUES(1,'2025-03-01T12:00:00+00:00','wattune 0.1.0');
CREATE TABLE wattune_traces (
                run_id TEXT NOT NULL REFERENCES wattune_runs (id) ON DELETE CASCADE,
                position INTEGER NOT NULL,
                gpu TEXT NOT NULL,
                simulated BOOLEAN NOT NULL,
                samples BIGINT NOT NULL,
                duration_s DOUBLE PRECISION NOT NULL,
                mean_power_w DOUBLE PRECISION,
                min_power_w DOUBLE PRECISION,
                max_power_w DOUBLE PRECISION,
                p95_power_w DOUBLE PRECISION,
                mean_sm_mhz DOUBLE PRECISION,
                mean_mem_mhz DOUBLE PRECISION,
                refresh_s DOUBLE PRECISION,
                PRIMARY KEY (run_id, position)
            );
INSERT INTO "wattune_traces" VALUES('5f0c',0,'GPU-0',1,25,2.5,200.1,60.0,260.0,255.0,1400.5,NULL,0.1);
INSERT INTO "wattune_traces" VALUES('7a10',0,'GPU-0',0,25,2.5,200.1,60.0,260.0,255.0,1400.5,NULL,0.1);
CREATE TABLE wattune_trials (
                run_id TEXT NOT NULL REFERENCES wattune_runs (id) ON DELETE CASCADE,
                position INTEGER NOT NULL,
                workload TEXT NOT NULL,
                gpu TEXT NOT NULL,
                simulated BOOLEAN NOT NULL,
                choice_kind TEXT NOT NULL,
                choice TEXT NOT NULL,
                sm_mhz INTEGER,
                mem_mhz INTEGER,
                power_limit_w DOUBLE PRECISION,
                time_s DOUBLE PRECISION NOT NULL,
                energy_j DOUBLE PRECISION NOT NULL,
                time_error_s DOUBLE PRECISION,
                energy_error_j DOUBLE PRECISION,
                PRIMARY KEY (run_id, position)
            );
INSERT INTO "wattune_trials" VALUES('5f0c',0,'resnet50','A100',1,'setting','{"sm_mhz": 1410, "mem_mhz": null, "power_limit_w": 250.0}',1410,NULL,250.0,1.0,200.0,0.01,2.0);
INSERT INTO "wattune_trials" VALUES('5f0c',1,'resnet50','A100',1,'setting','{"sm_mhz": null, "mem_mhz": null, "power_limit_w": null}',NULL,NULL,NULL,0.9,230.0,NULL,NULL);
INSERT INTO "wattune_trials" VALUES('7a10',0,'resnet50','A100',0,'setting','{"sm_mhz": 1410, "mem_mhz": null, "power_limit_w": 250.0}',1410,NULL,250.0,1.0,200.0,0.01,2.0);
INSERT INTO "wattune_trials" VALUES('7a10',1,'resnet50','A100',0,'setting','{"sm_mhz": null, "mem_mhz": null, "power_limit_w": null}',NULL,NULL,NULL,0.9,230.0,NULL,NULL);
CREATE INDEX wattune_runs_started_at ON wattune_runs (started_at);
CREATE INDEX wattune_trials_workload_gpu ON wattune_trials (workload, gpu);
COMMIT;
