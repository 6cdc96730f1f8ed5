from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.CreateModel(
            name="Reservation",
            fields=[
                ("dedup_key", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("label", models.CharField(max_length=255)),
                ("state", models.CharField(max_length=8)),
                ("token", models.BigIntegerField()),
                ("attempt", models.CharField(max_length=32)),
                ("takeovers", models.IntegerField()),
                ("since", models.BigIntegerField()),
                ("lease_until", models.BigIntegerField()),
                ("fingerprint", models.CharField(max_length=40, null=True)),
                ("result", models.TextField(null=True)),
                ("created_at", models.BigIntegerField()),
                ("updated_at", models.BigIntegerField()),
            ],
            options={
                "db_table": "once_more_reservation",
                "indexes": [models.Index(fields=["state", "updated_at"], name="once_more_reservation_care")],
            },
        ),
    ]
